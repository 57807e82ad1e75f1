"""What is refused before work begins: numbers, sizes and small files out of range, and replacing what a stage did not
make."""

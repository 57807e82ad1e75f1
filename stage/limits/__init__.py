"""What is refused before work begins: numbers and sizes out of range, and replacing what a stage did not make."""

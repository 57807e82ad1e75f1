"""Write one self-contained HTML page about one or several runs."""

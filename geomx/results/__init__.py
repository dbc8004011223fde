"""Output of a run: its files, the recorder that writes them, and their readers."""

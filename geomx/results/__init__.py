"""What a run leaves behind: the files, what writes them while it runs, and what reads them back."""

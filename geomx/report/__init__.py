"""What a run looks like to people: the files' formats, the terminal's table and the HTML page."""

"""One module for each page of docs/reference/, and what they share."""

"""Training data: from text files to sentence pairs, token ids and batches."""

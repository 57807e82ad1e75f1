"""Convert text to token ids, exactly as SentencePiece does, and fast."""

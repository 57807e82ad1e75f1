"""From text to token ids, exactly as SentencePiece, and fast."""

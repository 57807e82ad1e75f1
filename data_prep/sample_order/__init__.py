"""Which tokens make up training sample i."""

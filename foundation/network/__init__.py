"""Read objects at addresses: in buckets, and on web servers."""

"""Objects in buckets and on web servers: where they are, and reading them patiently."""

"""A checkpoint that lies in a bucket or on a web server: read from there, object by object."""

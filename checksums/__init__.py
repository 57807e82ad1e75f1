"""The published MD5 manifests, and creating and verifying such lists."""

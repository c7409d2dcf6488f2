"""What all processes of a sandbox use: frames, Linux interfaces, folders, installed packages."""

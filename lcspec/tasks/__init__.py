"""What people do with texts: each task is a prompt, the care around it, and a result."""

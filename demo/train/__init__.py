"""How the demo models were made; needs PyTorch, which is no dependency of this project."""

"""Kernelwright: a PyTorch module in, a verified and measured faster module out."""

"""Implement DP-SkGD: samplings, smoothness, geometries, averages, Algorithm 1."""

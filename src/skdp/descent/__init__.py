"""DP-SkGD: samplings, smoothness, geometries, averages and Algorithm 1."""

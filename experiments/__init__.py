"""The paper's experiments: one file a figure, a data set, a system or a sampling."""

"""The paper's experiments: one file per figure, data set, system or sampling."""

"""The cluster: masters, workers, application masters, executors and clients."""

"""Put data sets on the fast disk of the node."""

"""One experiment as data: how it is built and checked, and the nodes and links it consists of."""

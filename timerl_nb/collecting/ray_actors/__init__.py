"""Collection by actors of Ray: the connection, the actors' code, and batches joined from their parts."""

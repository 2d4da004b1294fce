"""What lives when: exact lifetimes, stores, and the memory timeline before anything runs."""

"""Paper 004's evaluation of ACS: its workloads, recorded, and its figures, simulated."""

"""What a user writes: contexts, symbolic indices, recurrent tensors, gradients."""

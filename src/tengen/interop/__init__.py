"""Ways in and out: exchange of tensors with other libraries."""

"""What the CLIs say of themselves, by hooks and in their transcripts: read here, without I/O."""

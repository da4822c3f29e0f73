"""Families of models: what each calls its tensors."""

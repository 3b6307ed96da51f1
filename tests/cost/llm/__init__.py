"""Tests of what language models cost."""

"""Tests of weftline.graph."""

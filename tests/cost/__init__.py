"""Tests of weftline.cost."""

"""Tests of weftline.problem."""

"""Tests of weftline.plan."""

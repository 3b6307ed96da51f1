"""Tests of weftline.certify."""

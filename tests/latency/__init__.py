"""Tests of weftline.latency; a package, so that files may be called like those of other rooms."""

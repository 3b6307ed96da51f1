"""Tests of weftline.pipeline; a package, so that files may be called like those of other rooms."""

"""Tests of weftline.place; a package, so that files may be called like those of other rooms."""

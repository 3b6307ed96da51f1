"""Every solver of a family through the same suite; a package, so that files may be called like those of other rooms."""

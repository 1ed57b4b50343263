"""What people look at: grids as text and SVG, trees, tables, progress. It draws what it is handed."""

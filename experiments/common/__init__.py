"""What the reproductions of PATE share: measures and tables, accountants, images, tables of the UCI."""

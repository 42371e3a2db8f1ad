gradwire_embed(digits_csv_gz ${PROJECT_SOURCE_DIR}/examples/data/digits.csv.gz)
# The text workload's default: a page of this project.
gradwire_embed(design_md ${PROJECT_SOURCE_DIR}/docs/design.md)
gradwire_embed(cli_md ${PROJECT_SOURCE_DIR}/docs/cli.md)

"""The adapter of Iceberg tables: PyIceberg behind the LakeTable port."""

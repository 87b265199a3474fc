"""Programs that other systems start: today the stage job of spark-submit."""

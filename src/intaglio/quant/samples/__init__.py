"""Calibration samples: reading them from folders, lists, arrays and Python objects, preparing
images as the model's input wants them, deciding how many are enough, carrying the state of
streaming models from sample to sample, and drawing synthetic text for language models.
"""

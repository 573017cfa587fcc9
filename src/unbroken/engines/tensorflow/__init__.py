"""Run the user's own training script of TensorFlow or Keras, which saves and resumes by itself."""

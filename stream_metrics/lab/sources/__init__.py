"""Where recordings come from: files, topics, traces, test collections and scores."""

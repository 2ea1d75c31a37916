"""The ground floor: dtypes, errors and configuration. Imports nothing of Tengen."""

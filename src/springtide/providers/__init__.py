"""Where instances live: one adapter a place. The daemon makes them; all use `ports.Provider`."""

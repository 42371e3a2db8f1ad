namespace gradwire {}

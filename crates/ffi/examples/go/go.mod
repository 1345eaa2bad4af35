module tidegate.example/embedding

go 1.19
